"""What is predicted from encoded states, with its loss and its accuracy."""
