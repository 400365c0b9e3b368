"""Inputs and labels that a gradient reveals in closed form."""

import jax
import jax.numpy as jnp


def dense_input(kernel_grad: jax.Array, bias_grad: jax.Array) -> jax.Array:
  r"""Return a dense layer's input, from the gradient of one sample.

  :math:`x = \partial_{W_i} L / \partial_{b_i} L`, at the output i with the
  largest bias gradient. Gradients are f32[inputs, outputs] and f32[outputs].
  Geiping et al., arXiv:2003.14053, Proposition 3.1.
  """
  i = jnp.argmax(jnp.abs(bias_grad))
  return kernel_grad[:, i] / bias_grad[i]


def last_layer_label(bias_grad: jax.Array) -> jax.Array:
  r"""Return one sample's label, from the logits' bias gradient f32[classes].

  :math:`\partial_b L = p - e_y` with softmax cross-entropy: its one negative
  number is at the label y. Zhao, Mopuri and Bilen, iDLG, arXiv:2001.02610.
  """
  return jnp.argmin(bias_grad).astype(jnp.int32)
