"""The evaluation: attention of five models and ten operators over many lengths, beside their peers (``make evaluation``)."""
