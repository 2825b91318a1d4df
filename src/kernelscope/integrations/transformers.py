"""For the Trainer of Hugging Face transformers: a callback that records chosen steps.

Example:
    from kernelscope.integrations.transformers import KernelscopeCallback

    trainer = Trainer(model, args, train_dataset=data, callbacks=[KernelscopeCallback(steps=(3, 6))])
"""

from __future__ import annotations

from typing import Any

from .packages import needed
from .step_recorder import StepRecorder, Steps

_transformers = needed("transformers", "transformers", "kernelscope.integrations.transformers")


class KernelscopeCallback(_transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Records the steps that were chosen; steps are counted as `state.global_step` does, from 0.

    A step begins with its first batch and ends after the optimizer, whatever the gradient accumulation is.
    After a resume, counting goes on where the checkpoint was made. The options are those of `StepRecorder`.
    """

    def __init__(self, steps: Steps, **options: Any) -> None:
        self.recorder = StepRecorder(steps, **options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.recorder.close()  # of a training that ended with an exception: the Trainer does not report those

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.recorder.begin(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.recorder.end(state.global_step - 1)  # it counts the step that has just ended

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.recorder.finish()
