"""Tasks: what the outputs of a network mean. A task is a class like `task.Task`, chosen by `choose.choose_task`."""
