"""Where a request comes from, by W3C trace context; and, as an extra, spans for OpenTelemetry."""
