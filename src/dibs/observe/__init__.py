"""What Dibs counts about itself. Pure bookkeeping: no I/O, importable from anywhere above `core`."""
