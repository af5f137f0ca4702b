from tests.test_triton import interpreted


def test_module_on_the_kernels() -> None:
    done = interpreted("-m", "pytest", "tests/property/triton_properties.py")
    assert done.returncode == 0, done.stdout
