"""What requests mean, without any transport: each function takes a servable and values, and answers or raises StatusError."""
