"""Small models are computed with one thread, and the caller's setting comes back."""

import torch

from goalscope.agents.models import threads


def test_a_small_model_gets_one_thread_and_a_large_one_keeps_what_there_is() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model = type("Model", (torch.nn.Linear,), {"device": torch.device("cpu")})(4, 4)
        with threads.fitting_threads(model):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        threads.SMALL, kept = 10, threads.SMALL
        try:
            with threads.fitting_threads(model):
                assert torch.get_num_threads() == 2
        finally:
            threads.SMALL = kept
    finally:
        torch.set_num_threads(before)
