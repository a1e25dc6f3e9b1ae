"""Who has which chips of this node: one rule, and one ledger on disk."""
