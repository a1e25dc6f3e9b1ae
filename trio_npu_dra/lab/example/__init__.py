"""The smallest whole DRA driver, to copy from: it stands on the kit alone and knows no NPU."""

__all__ = ["__main__"]
