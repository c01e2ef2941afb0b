"""Run times by a mixture density network (Naghshnejad 2019, chapter 6; Bishop 1994)."""
