"""The election of the deciding replica, and the knowledge that it leaves to the next one."""
