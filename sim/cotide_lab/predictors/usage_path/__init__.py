"""Paths of the next twelve slots by an encoder-decoder network (Naghshnejad 2019, chapter 7)."""
