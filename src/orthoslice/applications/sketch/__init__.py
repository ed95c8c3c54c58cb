"""Points that pass by once."""
