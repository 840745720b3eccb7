"""What runs beside untrusted code: standard library only, imported by a bare interpreter."""
