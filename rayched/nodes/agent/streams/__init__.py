"""What clients want of the pods of a node: their logs, programs in them, their ports, what they use."""
