"""What requests mean, without any transport: functions of a servable and values that answer or raise StatusError."""
