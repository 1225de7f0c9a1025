"""`--log csv,tensorboard,wandb`: each row of metrics.jsonl, once it is there, goes to where others look for it."""

from gossamer.train.loggers.attach import LOGGERS, check_log, logged

__all__ = ["LOGGERS", "check_log", "logged"]
