"""Reports on chips and on what is handed out: Events, the pods' device health."""
