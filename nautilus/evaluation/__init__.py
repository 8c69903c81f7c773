"""The evaluation: models and operators at many sizes beside their peers (``make evaluation``)."""
