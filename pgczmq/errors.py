"""What can go wrong, by whose fault it is: the user's, a peer's, or the cluster's.

An error's text is what the person reads, so it is a sentence: the rule, what was given, what would work.
Each class carries the exit code of the process that ends with it (README, "Exit codes").
"""


class PgcError(Exception):
    """Base of every error this program raises on purpose."""

    exit_code = 70


class ConfigError(PgcError):
    """The user's: a setting, a file or a combination of them that cannot be run."""

    exit_code = 2


class WireError(PgcError):
    """A peer's: a frame that does not follow the protocol. It is counted and refused, never fatal."""


class ClusterError(PgcError):
    """The run cannot go on: too few workers, no master, a refused join."""

    exit_code = 74


class JoinRefused(ClusterError):
    """The master does not take this worker, and said why."""

    exit_code = 71


class MasterUnreachable(ClusterError):
    """The master does not answer, or has been silent for too long."""

    exit_code = 73


class AuthenticationFailed(ClusterError):
    """Master and worker do not know each other's keys, or only one of them uses keys."""

    exit_code = 72
