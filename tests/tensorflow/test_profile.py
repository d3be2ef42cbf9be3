"""TensorFlow's profiler shows the calls that Python makes, with their attributes, and steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import Ranks

pytestmark = pytest.mark.multiprocess


def _spans(folder: str) -> list[tuple[str, dict[str, str]]]:
    """What one rank's profile has of its calls and steps, by their ends."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    import ciranda
    import ciranda.tensorflow as hvd

    own = Path(folder) / str(hvd.rank())
    hvd.allreduce(tf.ones(3), name="without a profile")
    tf.profiler.experimental.start(str(own))
    for _ in range(2):
        hvd.allreduce(tf.ones((5, 2)), name="x")
        hvd.barrier()
        ciranda.step()
    tf.profiler.experimental.stop()
    (file,) = own.rglob("*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(file.read_bytes())
    found = []
    for plane in space.planes:
        names = {number: each.name for number, each in plane.stat_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                if name.startswith("ciranda:"):
                    stats = {
                        names[stat.metadata_id]: str(
                            stat.str_value or names.get(stat.ref_value) or stat.int64_value or stat.uint64_value
                        )
                        for stat in event.stats
                    }
                    found.append((event.offset_ps + event.duration_ps, name.removeprefix("ciranda:"), stats))
    return [(name, stats) for _, name, stats in sorted(found, key=lambda each: each[0])]


def test_profiles_show_calls_and_steps(world: Ranks, tmp_path: Path) -> None:
    for spans in world.run(_spans, str(tmp_path)):
        assert [name for name, _ in spans] == ["allreduce", "barrier", "allreduce", "barrier", "step"]
        first = spans[0][1]
        assert (first["Name"], first["dtype"], first["In msg nelems"]) == ("x", "float32", "10")
        assert (first["Msg bytes"], first["Group size"]) == ("40", "3")
        assert int(spans[-1][1]["step_num"]) > 1
