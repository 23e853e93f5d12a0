"""Functions of tensors that PyTorch's compiler makes few kernels of, where a training asks for that."""
