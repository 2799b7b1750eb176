"""A pretended accelerator: tensors that say they lie on another device and refuse what one refuses.

Waits of the host, copies to the device and bytes allocated there are counted. The tensors live in host memory, so that
the processor's kernels compute their numbers. A torch built without CUDA suffices.
"""

import weakref
from collections import Counter

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
                "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64"
            )
        shape = {
            "strides": held.stride(),
            "storage_offset": held.storage_offset(),
            "dtype": held.dtype,
        }
        self = Tensor._make_wrapper_subclass(cls, held.shape, **shape)
        self.held, self.where = held, where
        Pretence.allocate(self)
        return self

    def __repr__(self):
        return f"Elsewhere({self.held}, {self.where})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), func.overloadpacket.__name__
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
        # What is written in place stays the tensor it is
        wrappers = {id(tensor.held): tensor for tensor in ours}

        def wrapped(leaf):
            if not isinstance(leaf, Tensor):
                return leaf
            return wrappers[id(leaf)] if id(leaf) in wrappers else cls(leaf, where)

        return tree_map(wrapped, func(*plain_args, **plain_kwargs))


class Pretence(TorchFunctionMode):
    """A world in which the devices `cuda:…` and `mps` are there; `waits` and `copies` count what the host does."""

    waits, copies = Counter(), Counter()
    # Of each storage how many tensors use it; bytes now, and the most
    users, allocated, peak = (
        Counter(),
        0,
        0,
    )

    @classmethod
    def allocate(cls, tensor):
        """Count the bytes of a tensor until it goes; views share theirs."""
        storage = tensor.held.untyped_storage()
        place, size = storage.data_ptr(), storage.nbytes()
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
        # Else `.to` writes through `.data`
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        return super().__enter__()

    def __exit__(self, *error):
        torch.__future__.set_overwrite_module_params_on_conversion(False)
        return super().__exit__(*error)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        first = args[0] if args else None
        if name in ("to", "cpu") and isinstance(first, Tensor):
            return self._moved(
                first, *_target(name, *args[1:], **kwargs), kwargs.get("non_blocking")
            )
        if isinstance(first, Elsewhere):
            if name in ("numpy", "__array__"):
                raise TypeError("can't convert a device tensor to numpy: use Tensor.cpu()")
            if name in SCALARS:
                self.waits[name] += 1
                return getattr(first.held, name)()
            if name == "__deepcopy__":
                return Elsewhere(first.held.clone(), first.where)
            if name == "new_tensor":
                kwargs = {"dtype": first.dtype, "device": first.where} | kwargs
                return self.__torch_function__(torch.tensor, (), args[1:], kwargs)
            if name in FRESH:
                # It lives as long
                first.grown = Elsewhere(first.held.new_empty(*args[1:]), first.where)
                return first.grown
        where, is_pinned = _device(kwargs.get("device")), kwargs.pop("pin_memory", False)
        if where.type == "cpu":
            made = func(*args, **kwargs)
            if is_pinned:
                made.in_pinned_memory = True
            return made
        made = func(*args, **kwargs | {"device": None})
        if name == "tensor" and made.numel():
            self.copies[name] += 1
            self.waits[name] += 1
        return made if isinstance(made, Elsewhere) else Elsewhere(made, where)

    def _moved(self, tensor, where, dtype, non_blocking):
        before, where = tensor.device, where or tensor.device
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
    """Where a tensor is to go and as what; None for a dtype that stays."""
    if name == "cpu":
        return torch.device("cpu"), None
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    for value in args:
        if isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, str | torch.device):
            device = value
    return None if device is None else _device(device), dtype


def spread(network, devices):
    """Lay a Llama out over two devices as accelerate does: hooks bring to each part what it reads."""
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
