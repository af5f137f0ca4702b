from dataclasses import dataclass

NODE_WEIGHTS = ("softmax", "sigmoid")


@dataclass(frozen=True)
class Calibration:
    r"""The constants of GReLU's calibrated form, with which the learned shifts enter:

    .. math::
        \alpha^k_{nc} &= [k = 1] + s \, g \, \tilde\gamma_n \, r_k \, \alpha^k_c, \qquad
        \beta^k_{nc} = s \, g \, \tilde\gamma_n \, b \, \beta^k_c

        \alpha_c, \beta_c &= \tanh (c \, \mathrm{MLP} (\bar{\mathbf{e}})), \qquad
        \tilde\gamma_n = \min (m, \, w N \, \mathrm{softmax}_n (\rho^p z_n / \tau)), \qquad
        r_1 = 1, \quad r_2 = \ldots = r_K = r

    With `smooth`, :math:`z_n = \mathrm{MLP} (\bar{\mathbf{x}}_n)` of the mean
    :math:`\bar{\mathbf{x}}_n = \mathbf{e}_n / a_n`, :math:`\mathbf{a} = \mathbf{S} \mathbf{1}`, of
    the features around a node, and :math:`\rho` is the smoothness of what the MLP
    looks at: the share of the variance of :math:`\mathrm{MLP} (\mathbf{x}_n)` over the nodes that
    this mean leaves, at most 1. Where neighbours are alike, nodes are told apart by their
    surroundings; where they are not, :math:`\rho` is close to zero and all nodes have the same
    weight. Without, :math:`z_n = \mathrm{MLP} (\mathbf{e}_n)`, :math:`\rho = 1`.

    The defaults are the outcome of a study (`graphrelu reproduce calibration`) that looked at
    validation accuracy on four graphs; :obj:`docs/calibration.md` tells it.

    Args:
        temperature (float, optional): :math:`\tau`, of the node softmax.
        gamma_scale (float, optional): :math:`w`, the weight of an average node.
        gamma_max (float, optional): :math:`m`, the largest weight that a node can have.
        rest_scale (float, optional): :math:`r`, how far the slopes of segments beyond the first
            move, in units of the first's.
        intercept_scale (float, optional): :math:`b`, the same for intercepts.
        channel_scale (float, optional): :math:`c`, how fast the channel block moves, in the same
            sense as the gate below.
        gate_scale (float, optional): :math:`s`, how fast the gate moves: for an optimiser like
            Adam its learning rate is multiplied by it, and its weight decay divided by its
            square.
        gate_max (float, optional): :math:`h`, the bound of the gate: :math:`s \, g` is replaced by
            :math:`h \tanh (s \, g / h)`; none by default.
        gated (bool, optional): If :obj:`False`, there is no gate :math:`g`, and the last layer of
            the channel MLP starts at zero instead, so that a fresh module is ReLU, too.
        smooth (int, optional): :math:`p`, how far the smoothness counts: 0 (not at all; nodes are
            told apart by what is diffused to them), 1 or 2.
        rest_smooth (bool, optional): If :obj:`True`, :math:`r_2, \ldots, r_K` and :math:`b` are
            multiplied by :math:`\rho^p`, through which no gradient goes: slopes below zero and
            intercepts adapt where neighbours are alike.
        first_smooth (bool, optional): If :obj:`True`, so is :math:`r_1`, and GReLU is ReLU where
            neighbours are not alike. Only with `rest_smooth`, and without kernels of its own.
        centred (bool, optional): If :obj:`True`, :math:`\alpha^1_c` is replaced by
            :math:`\alpha^1_c - \frac{1}{C} \sum_c \alpha^1_c`: the gate can weigh channels
            against each other, and cannot make all of them larger, past the weight decay of the
            layers around.
        node_weights (str, optional): :obj:`"softmax"`, or :obj:`"sigmoid"` for
            :math:`\tilde\gamma_n = \min(m, 2 w \, \sigma(z_n / \tau))`, which does not compare
            nodes with each other.
    """

    temperature: float = 10.0
    gamma_scale: float = 1 / 3
    gamma_max: float = 1.0
    rest_scale: float = 1.0
    intercept_scale: float = 0.25
    channel_scale: float = 1.0
    gate_scale: float = 1.0
    gate_max: float | None = None
    gated: bool = True
    smooth: int = 1
    rest_smooth: bool = True
    first_smooth: bool = False
    centred: bool = True
    node_weights: str = "softmax"

    def __post_init__(self) -> None:
        positive = ["temperature", "gamma_scale", "gamma_max", "channel_scale", "gate_scale"]
        for name in positive if self.gate_max is None else [*positive, "gate_max"]:
            value = getattr(self, name)
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value}.")
        for name in ("rest_scale", "intercept_scale"):
            value = getattr(self, name)
            if not value >= 0:
                raise ValueError(f"{name} must be zero or more, got {value}.")
        if self.first_smooth and not self.rest_smooth:
            raise ValueError("first_smooth must be False where rest_smooth is, got True.")
        if self.smooth not in (0, 1, 2):
            raise ValueError(f"smooth must be 0, 1 or 2, got {self.smooth}.")
        if self.node_weights not in NODE_WEIGHTS:
            known = ", ".join(NODE_WEIGHTS)
            raise ValueError(f"node_weights must be one of {known}, got {self.node_weights!r}.")

    @property
    def has_kernels(self) -> bool:
        """Whether the kernels of :mod:`graphrelu.blocks` have this form."""
        return self.gated and self.node_weights == "softmax" and not self.first_smooth


DEFAULT = Calibration()
