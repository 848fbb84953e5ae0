"""What an object must look like, and how it may change; see `objects` for the rules of each kind."""

from rayched.api.validation.objects import validate
from rayched.api.validation.updates import validate_new, validate_update

__all__ = ["validate", "validate_new", "validate_update"]
