"""LoRA adapters: reading them, keeping them on the device, counting who uses them."""
