"""What Dibs counts about itself: `meters`. No I/O; importable from anywhere above `core`."""
