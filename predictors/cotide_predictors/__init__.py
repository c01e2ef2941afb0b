"""Estimators with the scikit-learn contract: numpy in, numpy out, no I/O beyond the serialisation of bytes."""
