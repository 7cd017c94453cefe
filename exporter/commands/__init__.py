"""The exporter's commands. Heavy modules, such as TensorFlow, are imported when one runs."""
