"""The exporter's commands: one module per command. Heavy modules, such as TensorFlow, are imported when it runs."""
