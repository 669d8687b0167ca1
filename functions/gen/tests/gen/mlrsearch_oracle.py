"""What the PyPI package MLRsearch makes of recorded trials, and of a device. Reads and writes JSON."""

import json
import sys

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal
from MLRsearch.target_spec import TargetSpec
from MLRsearch.target_stat import TargetStat


def classified(trials, goal):
    """Each load with the two estimates and the loss ratio of its conditional throughput."""
    target = TargetSpec(
        loss_ratio=goal["loss_ratio"],
        exceed_ratio=goal["exceed_ratio"],
        discrete_width=None,
        trial_duration=goal["final_trial"],
        duration_sum=goal["duration_sum"],
        expansion_coefficient=2,
        fail_fast=False,
        preceding=None,
    )
    stats = {}
    for load, seconds, sent, received in trials:
        result = MeasurementResult(
            intended_duration=seconds, intended_load=load, offered_count=sent, forwarding_count=received
        )
        stats.setdefault(load, TargetStat(target)).add(result)
    return [[load, *stats[load].estimates(), stats[load].pessimistic_loss_ratio] for load in sorted(stats)]


class Device(AbstractMeasurer):
    """Carries so many packets a second."""

    def __init__(self, capacity):
        self.capacity = capacity

    def measure(self, intended_duration, intended_load):
        sent = int(intended_load * intended_duration)
        received = sent - int(sent * max(0.0, 1.0 - self.capacity / intended_load))
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=sent,
            forwarding_count=received,
        )


def searched(capacity, goals, least, most):
    """The bounds and the conditional throughput of each goal."""
    config = Config()
    config.goals = [
        SearchGoal(
            loss_ratio=goal["loss_ratio"],
            exceed_ratio=goal["exceed_ratio"],
            relative_width=goal["width"],
            initial_trial_duration=goal["initial_trial"],
            final_trial_duration=goal["final_trial"],
            duration_sum=goal["duration_sum"],
        )
        for goal in goals
    ]
    config.max_load = most
    config.min_load = least
    results = MultipleLossRatioSearch(config=config).search(Device(capacity))
    return [
        [float(result.relevant_lower_bound), float(result.relevant_upper_bound), float(result.conditional_throughput)]
        for result in (results[goal] for goal in config.goals)
    ]


question = json.load(sys.stdin)
answer = {
    "classified": [classified(question["trials"], goal) for goal in question["goals"]],
    "searched": searched(question["capacity"], question["goals"], question["least"], question["most"]),
}
json.dump(answer, sys.stdout)
