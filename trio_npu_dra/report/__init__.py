"""What others are told of chips and of what is handed out: Events, the pods' device health."""
