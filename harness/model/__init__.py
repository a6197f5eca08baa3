"""The Transformer that all encodings share."""
