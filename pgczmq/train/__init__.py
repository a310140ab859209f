"""The only home of torch: the user's task, gradients on the workers, the optimizer on the master.

Nothing is imported here, so that ``pgczmq.train.<module>`` costs what that module needs and no more.
"""
