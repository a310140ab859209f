"""Asynchronous SGD, a baseline in simulation only: every gradient is applied when it arrives, at lr / workers.

A step is one update. A worker takes the newest parameters, evaluates its partition's minibatch of as many updates
as are in them, and sends; the master applies the gradient with weight 1 / n, so that n arrivals move the
parameters about as far as one step of the other schemes. Undivided it diverges where they do not.

Source: schemes.md section 7; the asynchronous baseline of adaptive-k.
"""

from pgczmq.core.divergence import DIVERGED_FACTOR, LOSS_WINDOW, Losses
from pgczmq.core.policies import Plan, PolicyState
from pgczmq.core.progress import Progress
from pgczmq.runlog import EvalRecord, EventRecord, Record, Sink, StepRecord
from pgczmq.sim.training import Training
from pgczmq.sim.virtual import ARRIVES, Agenda, Aside, Durations, Ending


class Asynchronous:
    """One run.

    Args:
        workers: n; worker j holds partition j.
        steps: updates, one an arrival.
        eval_every, checkpoint_every: updates between looks at the held-out data, and between checkpoints; 0 = only
            at the end.
        durations: how long everything takes; ``step`` is the number of updates in a worker's parameters.
        training: computes; it holds one partition a worker.
        aside: held-out data and checkpoints.
        sink: takes the records; None when nobody wants any.
    """

    def __init__(
        self,
        workers: int,
        *,
        steps: int,
        eval_every: int = 0,
        checkpoint_every: int = 0,
        durations: Durations,
        training: Training,
        aside: Aside | None = None,
        sink: Sink | None = None,
    ) -> None:
        self._workers = workers
        self._steps = steps
        self._eval_every = eval_every
        self._checkpoint_every = checkpoint_every
        self._durations = durations
        self._training = training
        self._aside = aside or Aside()
        self._sink: Sink = sink or _nobody
        self._agenda = Agenda()
        self._taken = [(0, 0.0)] * workers  # updates in each worker's parameters, and when it took them
        self._updates = 0
        self._losses = Losses()
        self._loss: float | None = None
        self._end: tuple[str, bool] | None = None

    def run(self) -> Ending:
        """Let gradients arrive until there are enough of them."""
        self._training.publish(0, 0)
        for worker in range(self._workers):
            self._begin(worker)
        while self._end is None:
            self._agenda.do_next()
        reason, diverged = self._end
        if not diverged:
            self._save()
        self._sink(EventRecord(self._agenda.now, "finished", reason))
        return Ending(0, reason, diverged, self._updates, self._agenda.now, self._loss, 0.0)

    def _begin(self, worker: int) -> None:
        """A worker takes the parameters as they are and evaluates; its gradient arrives later."""
        step, durations = self._updates, self._durations
        self._taken[worker] = (step, self._agenda.now)
        loss = self._training.evaluate(worker, step, 0, 1.0)
        seconds = sum(part(worker, step, 1, 1.0) for part in durations.parts)
        self._agenda.add(self._agenda.now + seconds, ARRIVES, self._arrive, worker, loss)

    def _arrive(self, worker: int, loss: float) -> None:
        payload, _ = self._training.encode(worker)
        step = self._updates
        update = self._training.apply(step, [(worker, 1 / self._workers, payload)], Plan(1))
        if not update.finite:
            self._end = (f"diverged at step {step}: a gradient or the update is not finite", True)
            return
        self._updates += 1
        self._loss = loss
        self._losses = self._losses.after(loss)
        self._sink(self._step_record(worker, loss, update.norm))
        if self._losses.exploded:
            text = f"the mean loss of {LOSS_WINDOW} steps is over {DIVERGED_FACTOR:g} times the first"
            self._end = (f"diverged at step {step}: {text}", True)
            return
        self._go_on(worker)

    def _go_on(self, worker: int) -> None:
        done = self._updates == self._steps
        if done or (self._eval_every and self._updates % self._eval_every == 0):
            self._look()
        if done:
            self._end = ("done", False)
            return
        if self._checkpoint_every and self._updates % self._checkpoint_every == 0:
            self._save()
        oldest = min(step for other, (step, _) in enumerate(self._taken) if other != worker or self._workers == 1)
        self._training.publish(self._updates, oldest)
        self._begin(worker)

    def _step_record(self, worker: int, loss: float, norm: float) -> StepRecord:
        now, (taken, taken_at) = self._agenda.now, self._taken[worker]
        step = self._updates - 1
        return StepRecord(
            step=step,
            published_at=taken_at,
            closed_at=now,
            k=1,
            batch_fraction=1.0,
            loss=loss,
            arrived=(worker,),
            arrived_at=(now,),
            used=(worker,),
            spare=(),
            missing=(),
            weights=(1 / self._workers,),
            ages=((step - taken,),),
            recovered=1 / self._workers,
            max_alpha=1.0,
            fresh=1,
            applied_at=now,
            norm=norm,
            bytes=self._training.message_bytes,
        )

    def _look(self) -> None:
        if self._aside.evaluate is not None:
            loss, metric = self._aside.evaluate()
            self._sink(EvalRecord(self._updates, self._agenda.now, loss, metric, seconds=0.0))

    def _save(self) -> None:
        said = self._aside.checkpoint(Progress(self._updates, PolicyState(Plan(1)), self._losses))
        if said:
            self._sink(EventRecord(self._agenda.now, "checkpoint", said, step=self._updates))


def _nobody(record: Record) -> None:
    """Nobody looks."""
