"""The parts of :func:`graphrelu.convert`."""
