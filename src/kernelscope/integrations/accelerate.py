"""For training loops with Hugging Face Accelerate: batches with the chosen steps recorded.

Example:
    from kernelscope.integrations.accelerate import RecordedSteps

    recorded = RecordedSteps(accelerator, steps=(3, 6))
    accelerator.register_for_checkpointing(recorded)
    for batch in recorded(loader):
        ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from .packages import needed
from .step_recorder import StepRecorder, Steps

_accelerate = needed("accelerate", "accelerate", "kernelscope.integrations.accelerate")
Batch = TypeVar("Batch")


class RecordedSteps:
    """Counts optimizer steps over all epochs, and records those that were chosen.

    A step ends with the batch after which gradients are synchronized: with accumulation it has several.
    `register_for_checkpointing` keeps the count in checkpoints. The options are those of `StepRecorder`.
    """

    def __init__(self, accelerator: Any, steps: Steps, **options: Any) -> None:
        if not isinstance(accelerator, _accelerate.Accelerator):
            raise TypeError(f"RecordedSteps takes an Accelerator, not {type(accelerator).__name__}")
        self.accelerator = accelerator
        self.recorder = StepRecorder(steps, **options)
        self.step = 0

    def __call__(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        try:
            for batch in batches:
                self.recorder.begin(self.step)
                yield batch
                if self.accelerator.sync_gradients:
                    self.recorder.end(self.step)
                    self.step += 1
        except GeneratorExit:  # the loop was left: the step that was under way is not complete
            self.recorder.close()
            raise

    def close(self) -> None:
        """The training has ended, though more steps were chosen."""
        self.recorder.finish()

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = int(state["step"])
