"""What reads published files, and checks them as it does. Makes no examples of its own."""
