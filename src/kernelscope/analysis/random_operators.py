"""Operators that may depend on what no argument shows: a random generator, other memory, the program itself.

The names are those that torch tags `nondeterministic_seeded`; a test compares.
"""

from __future__ import annotations

_NAMES = """
_cudnn_attention_backward _cudnn_attention_forward _cudnn_init_dropout_state _cudnn_rnn
_efficient_attention_forward _fill_mem_eff_dropout_mask_ _flash_attention_forward
_flash_attention_forward_no_dropout_inplace _fused_dropout _fused_sdp_choice _lstm_mps
_nested_tensor_softmax_with_shape _sample_dirichlet _scaled_dot_product_attention_math
_scaled_dot_product_attention_math_for_mps _scaled_dot_product_cudnn_attention
_scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention
_scaled_dot_product_efficient_attention_backward _scaled_dot_product_flash_attention
_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_fused_attention_overrideable
_standard_gamma _triton_scaled_dot_attention alpha_dropout alpha_dropout_ bernoulli bernoulli_ binomial
cauchy cauchy_ dropout dropout_ exponential exponential_ feature_alpha_dropout feature_alpha_dropout_
feature_dropout feature_dropout_ geometric geometric_ gru log_normal log_normal_ lstm miopen_rnn
multinomial native_dropout normal normal_ normal_functional philox_rand poisson rand rand_like randint
randint_like randn randn_like random random_ randperm rnn_relu rnn_tanh rrelu rrelu_ rrelu_with_noise
rrelu_with_noise_ rrelu_with_noise_functional scaled_dot_product_attention uniform uniform_
"""
RANDOM_OPERATORS = frozenset(_NAMES.split())

_CHANCES = ("p", "dropout", "dropout_p", "attn_dropout_p", "train", "training")  # 0 or False: it draws none


def is_random(kernel_name: str) -> bool:
    """ "aten.rand.default", "aten::rand" and "torch.ops.aten.rand.default" are one operator."""
    return any(part in RANDOM_OPERATORS for part in kernel_name.replace("::", ".").split("."))


def draws(kernel_name: str, numbers: dict[str, object]) -> bool:
    """Whether a call drew random numbers: attention and dropout with probability 0 do not."""
    chances = [numbers[name] for name in _CHANCES if name in numbers]
    return is_random(kernel_name) and not any(c in (0, False) and c is not None for c in chances)


def adopts_memory(kernel_name: str) -> bool:
    """Whether it gives a tensor other memory, whose contents no argument shows: a storage, or a file."""
    parts = kernel_name.replace("::", ".").split(".")
    return "from_file" in parts or any(part.startswith("source_Storage") for part in parts)


def leaves_memory_unwritten(kernel_name: str) -> bool:
    """Whether it makes a tensor larger, and does not write to what it adds."""
    return not _RESIZES.isdisjoint(kernel_name.replace("::", ".").split("."))


_RESIZES = frozenset(("resize", "resize_", "resize_as", "resize_as_", "_resize_output", "_resize_output_"))
