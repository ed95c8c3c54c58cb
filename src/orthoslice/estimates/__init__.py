"""From scores to an estimate: the request, the driver of the five steps, statistics, doubts, the result."""
