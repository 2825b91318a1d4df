"""The same tiny training with three trainers: a compiled model, ten steps, on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

STEPS = 10


class Net(torch.nn.Module):
    """Compiled inside, so that its parameters have plain names."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
        self.compiled = [torch.compile(self.layers)]  # in a list: not a part of the module

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        made = self.compiled[0](x)
        return {"loss": torch.nn.functional.mse_loss(made, labels), "logits": made}


def samples() -> list[dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    return [{"x": torch.randn(8), "labels": torch.randn(4)} for _ in range(80)]


def fit_transformers(
    folder: Path, callbacks: Any = (), *, steps: int = STEPS, resume: bool = False, **options: Any
) -> Any:
    from transformers import Trainer, TrainingArguments

    torch.manual_seed(0)
    model = Net()
    given: dict[str, Any] = {
        "max_steps": steps, "per_device_train_batch_size": 4, "report_to": [], "use_cpu": True, "seed": 1,
        "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no",
    }  # fmt: skip
    arguments = TrainingArguments(str(folder), **given | options)
    trainer = Trainer(model, arguments, train_dataset=samples(), callbacks=list(callbacks))
    trainer.train(resume_from_checkpoint=resume or None)
    return model


def lightning_module() -> Any:
    from lightning.pytorch import LightningModule

    class Module(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, index: int) -> Any:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    return Module()


def fit_lightning(
    folder: Path, callbacks: Any = (), *, steps: int = STEPS, resume: str | None = None, **options: Any
) -> Any:
    from lightning.pytorch import Trainer

    torch.manual_seed(0)
    model = lightning_module()
    given: dict[str, Any] = {
        "max_steps": steps, "accelerator": "cpu", "devices": 1, "logger": False,
        "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
        "default_root_dir": str(folder),
    }  # fmt: skip
    trainer = Trainer(**given | options, callbacks=list(callbacks))
    trainer.fit(model, torch.utils.data.DataLoader(samples(), batch_size=4), ckpt_path=resume)
    model.trainer_for_tests = trainer
    return model


def fit_accelerate(
    recorded_with: Any = None,
    *,
    accumulate: int = 1,
    state: Path | None = None,
    save: Path | None = None,
    batches: int = STEPS,
) -> Any:
    """`recorded_with` makes something of an accelerator that a loader is given to."""
    from accelerate import Accelerator

    torch.manual_seed(0)
    model, accelerator = Net(), Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    loader = torch.utils.data.DataLoader(samples()[: 4 * batches], batch_size=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    recorded = recorded_with(accelerator) if recorded_with else lambda batches: batches
    if recorded_with:
        accelerator.register_for_checkpointing(recorded)
    if state is not None:
        accelerator.load_state(str(state))
    for batch in recorded(loader):
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()
    if recorded_with:
        recorded.close()
    if save is not None:
        accelerator.save_state(str(save))
    return model


def same_parameters(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = list(zip(one.parameters(), other.parameters(), strict=True))
    return bool(pairs) and all(torch.equal(a, b) for a, b in pairs)
