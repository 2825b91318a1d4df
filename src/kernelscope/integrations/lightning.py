"""For the Trainer of Lightning: a callback that records chosen steps.

Example:
    from kernelscope.integrations.lightning import KernelscopeCallback

    trainer = Trainer(max_steps=10, callbacks=[KernelscopeCallback(steps=(3, 6))])
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from .packages import needed
from .step_recorder import StepRecorder, Steps

_is_old = find_spec("lightning") is None and find_spec("pytorch_lightning") is not None
_home = "pytorch_lightning" if _is_old else "lightning.pytorch"
_lightning = needed(_home, "lightning", "kernelscope.integrations.lightning")


class KernelscopeCallback(_lightning.Callback):  # type: ignore[misc, name-defined]
    """Records the steps that were chosen; steps are counted as `trainer.global_step` does, from 0.

    A step ends when `global_step` has grown: with gradient accumulation it has several batches. After a
    resume, counting goes on where the checkpoint was made. The options are those of `StepRecorder`.
    """

    def __init__(self, steps: Steps, **options: Any) -> None:
        self.recorder = StepRecorder(steps, **options)
        self._step = -1

    def on_train_batch_start(self, trainer: Any, *_: Any, **__: Any) -> None:
        self._step = trainer.global_step
        self.recorder.begin(self._step)

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        if trainer.global_step > self._step:
            self.recorder.end(self._step)

    def on_train_end(self, trainer: Any, *_: Any) -> None:
        self.recorder.finish()

    def on_exception(self, trainer: Any, *_: Any) -> None:
        self.recorder.close()
