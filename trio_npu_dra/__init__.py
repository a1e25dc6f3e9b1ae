"""The DRA driver for Huawei Ascend NPUs."""

__version__ = "0.2.0.dev0"
