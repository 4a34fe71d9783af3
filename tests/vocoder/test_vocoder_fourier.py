import pytest
import torch

from cosyvoice_runtime.vocoder.torch.hift import Fourier
from cosyvoice_runtime.vocoder.torch.source import Rows

CPU = torch.device("cpu")
SIZES = [(16, 4), (8, 2), (12, 5)]


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("size", "hop"), SIZES)
def test_transform_equals_torch_stft(size: int, hop: int) -> None:
    signal = noise(2, 7 * hop * 3)
    window = torch.hann_window(size)
    expected = torch.stft(signal, size, hop, window=window, return_complex=True)
    found = Fourier(size, hop).transform(signal, Rows.of([7, 7], CPU), 3)
    torch.testing.assert_close(found, torch.cat([expected.real, expected.imag], dim=1), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("size", "hop"), SIZES)
def test_invert_equals_torch_istft(size: int, hop: int) -> None:
    real, imag = noise(2, 2, size // 2 + 1, 22)
    expected = torch.istft(torch.complex(real, imag), size, hop, window=torch.hann_window(size))
    found = Fourier(size, hop).invert(torch.cat([real, imag], dim=1), Rows.of([7, 7], CPU), 3)
    torch.testing.assert_close(found[:, : expected.shape[1]], expected, atol=1e-5, rtol=0)


def test_rows_of_different_lengths_equal_single_rows() -> None:
    fourier, per_frame, lengths = Fourier(16, 4), 3, [7, 2, 5]
    signal = noise(3, 7 * 12)
    rows = Rows.of(lengths, CPU)
    spectrum = fourier.transform(signal, rows, per_frame)
    inverse = fourier.invert(spectrum, rows, per_frame)
    for row, frames in enumerate(lengths):
        single = Rows.of([frames], CPU)
        alone = fourier.transform(signal[row : row + 1, : frames * 12], single, per_frame)
        torch.testing.assert_close(spectrum[row : row + 1, :, : frames * 3 + 1], alone)
        torch.testing.assert_close(
            inverse[row : row + 1, : frames * 12], fourier.invert(alone, single, per_frame)
        )
