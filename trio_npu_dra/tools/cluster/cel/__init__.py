"""CEL selectors of classes and claims, evaluated as the scheduler evaluates them, or not at all."""
