"""A pretended accelerator, whose tensors raise the errors of a real one for wrong devices.

Waits of the host, copies to the device and bytes allocated there are counted. The tensors are in
host memory, so that the kernels of the processor compute their numbers. A torch built without CUDA
suffices.
"""

import weakref
from collections import Counter
from typing import ClassVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

INDEXING = {"index", "index_put", "index_put_", "_unsafe_index"}
WAITING = {"nonzero", "masked_select", "_unique2", "unique_dim", "equal"}
SCALARS = {"item", "__bool__", "__float__", "__int__", "__index__", "tolist"}
FRESH = {"set_", "resize_"}  # would change a wrapper's shape


class Elsewhere(Tensor):
    """A tensor on a pretended device."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: self.where)

    @staticmethod
    def __new__(cls, held: Tensor, where: torch.device):
        if where.type == "mps" and held.dtype == torch.float64:
            raise TypeError(
                "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support "
                "float64"
            )
        shape = {
            "strides": held.stride(),
            "storage_offset": held.storage_offset(),
            "dtype": held.dtype,
        }
        self = Tensor._make_wrapper_subclass(cls, held.shape, **shape)
        self.held = held
        self.where = where
        Pretence.allocate(self)
        return self

    def __repr__(self):
        return f"Elsewhere({self.held}, {self.where})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        ours = [tensor for tensor in tensors if isinstance(tensor, cls)]
        here = [tensor for tensor in tensors if not isinstance(tensor, cls) and tensor.dim()]
        if name in INDEXING:
            indices = [index for index in args[1] if index is not None]
            if any(isinstance(index, cls) and index.where != args[0].device for index in indices):
                raise RuntimeError(
                    "indices should be either on cpu or on the same device as the indexed tensor"
                )
            if not isinstance(args[0], cls):
                raise RuntimeError("indices on a device into a tensor on the host")
            if here or any(index.dtype == torch.bool for index in indices):
                Pretence.waits[name] += 1
        elif name != "copy_" and (here or len({tensor.where for tensor in ours}) > 1):
            raise RuntimeError(f"Expected all tensors to be on the same device: {name}")
        if name in WAITING:
            Pretence.waits[name] += 1
        kwargs.pop("device", None)
        plain_args, plain_kwargs = tree_map(
            lambda leaf: leaf.held if isinstance(leaf, cls) else leaf, (args, kwargs)
        )
        where = ours[0].where
        # A tensor that is written in place keeps its wrapper.
        wrappers = {id(tensor.held): tensor for tensor in ours}

        def wrapped(leaf):
            if not isinstance(leaf, Tensor):
                return leaf
            return wrappers[id(leaf)] if id(leaf) in wrappers else cls(leaf, where)

        return tree_map(wrapped, func(*plain_args, **plain_kwargs))


class Pretence(TorchFunctionMode):
    """A context with the devices `cuda:…` and `mps`, in which waits and copies are counted."""

    waits: ClassVar = Counter()
    copies: ClassVar = Counter()
    users: ClassVar = Counter()  # the number of tensors that use each storage
    allocated = 0  # bytes
    peak = 0  # the most bytes that were allocated

    @classmethod
    def allocate(cls, tensor):
        """Count the bytes of a tensor until it is freed; views share their bytes."""
        storage = tensor.held.untyped_storage()
        place = storage.data_ptr()
        size = storage.nbytes()
        cls.allocated += 0 if cls.users[place] else size
        cls.users[place] += 1
        cls.peak = max(cls.peak, cls.allocated)
        weakref.finalize(tensor, cls.free, place, size)

    @classmethod
    def free(cls, place, size):
        cls.users[place] -= 1
        cls.allocated -= 0 if cls.users[place] else size

    def __enter__(self):
        self.waits.clear()
        self.copies.clear()
        # Otherwise `.to` writes through `.data`.
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        return super().__enter__()

    def __exit__(self, *error):
        torch.__future__.set_overwrite_module_params_on_conversion(False)
        return super().__exit__(*error)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        first = args[0] if args else None
        if name in ("to", "cpu") and isinstance(first, Tensor):
            where, dtype = _target(name, *args[1:], **kwargs)
            return self._moved(first, where, dtype, kwargs.get("non_blocking"))
        if isinstance(first, Elsewhere):
            result = self._device_method(name, first, args)
            if result is not NotImplemented:
                return result
        where = _device(kwargs.get("device"))
        is_pinned = kwargs.pop("pin_memory", False)
        if where.type == "cpu":
            result = func(*args, **kwargs)
            if is_pinned:
                result.in_pinned_memory = True
            return result
        result = func(*args, **kwargs | {"device": None})
        if name == "tensor" and result.numel():
            self.copies[name] += 1
            self.waits[name] += 1
        return result if isinstance(result, Elsewhere) else Elsewhere(result, where)

    def _device_method(self, name, tensor, args):
        """Return the result of a method of a device tensor that differs; else `NotImplemented`."""
        if name in ("numpy", "__array__"):
            raise TypeError("can't convert a device tensor to numpy: use Tensor.cpu()")
        if name in SCALARS:
            self.waits[name] += 1
            return getattr(tensor.held, name)()
        if name == "__deepcopy__":
            return Elsewhere(tensor.held.clone(), tensor.where)
        if name in FRESH:
            # The tensor keeps its new wrapper alive.
            tensor.grown = Elsewhere(tensor.held.new_empty(*args[1:]), tensor.where)
            return tensor.grown
        return NotImplemented

    def _moved(self, tensor, where, dtype, non_blocking):
        before = tensor.device
        where = where or before
        held = tensor.held if isinstance(tensor, Elsewhere) else tensor
        if before == where and dtype in (None, tensor.dtype):
            return tensor
        if before != where:
            if where.type == "cpu":
                self.waits["cpu"] += 1
            elif before.type == "cpu":
                self.copies["to"] += 1
                is_pinned = where.type != "cuda" or hasattr(tensor, "in_pinned_memory")
                self.waits["to"] += not (non_blocking and is_pinned)
            held = held.detach().clone()
        held = held if dtype is None else held.to(dtype)
        return held if where.type == "cpu" else Elsewhere(held, where)


def _device(device) -> torch.device:
    device = torch.device("cpu") if device is None else torch.device(device)
    return torch.device(device.type, device.index or 0) if device.type == "cuda" else device


def _target(name, *args, **kwargs):
    """Return the device and the dtype to which a tensor is moved; None for no change."""
    if name == "cpu":
        return torch.device("cpu"), None
    device = kwargs.get("device")
    dtype = kwargs.get("dtype")
    for value in args:
        if isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, str | torch.device):
            device = value
    return None if device is None else _device(device), dtype


def spread(network, devices):
    """Spread a Llama over two devices as accelerate does: hooks move the inputs of each part."""
    last = len(network.model.layers) // 2
    parts = [*network.model.layers[last:], network.model.norm, network.lm_head]

    def brought(device):
        return lambda value: value.to(device) if isinstance(value, Tensor) else value

    network.to(devices[0])
    for part in parts:
        part.to(devices[1])
        hook = lambda _, args, kwargs: tree_map(brought(devices[1]), (args, kwargs))  # noqa: E731
        part.register_forward_pre_hook(hook, with_kwargs=True)
    network.hf_device_map = {"model": devices[0], "model.norm": devices[1]}
    network.register_forward_hook(lambda _, args, output: _back(output, devices[0]))
    return network


def _back(output, device):
    output.logits = output.logits.to(device)
    return output
