"""Screenshots of the console for the guides: with PICTURES=docs/images in the environment they are written there."""

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from PIL import Image

from tests.console.browser.visitor import Visitor

PLACES: Final = {"laptop": (1280, 800), "phone": (390, 844)}
LIGHT, DARK = "light", "dark"
LAPTOP, PHONE = PLACES
# Enough colours for a page without photographs.
COLOURS: Final = 96


@dataclass(frozen=True)
class Camera:
    """Take screenshots as a laptop or a phone, light or dark; or none."""

    into: Path | None

    @classmethod
    def of_the_environment(cls) -> "Camera":
        """Return one that writes to PICTURES, if it is set."""
        named = os.environ.get("PICTURES")
        return cls(Path(named).resolve() if named else None)

    def off(self) -> "Camera":
        """Return one that takes no screenshots."""
        return replace(self, into=None)

    def takes(self, name: str, visitor: Visitor, *wanted: tuple[str, str]) -> None:
        """Take screenshots of the open page, one for each device and theme."""
        if self.into is None:
            return
        self.into.mkdir(parents=True, exist_ok=True)
        command = visitor.browser.execute_cdp_cmd  # type: ignore[attr-defined]  # Chromium's driver has it
        for place, theme in wanted:
            width, height = PLACES[place]
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": place == PHONE}
            command("Emulation.setDeviceMetricsOverride", size)
            command("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})
            visitor.browser.refresh()
            # Wait for plots and fonts.
            time.sleep(1.5)
            taken = self.into / f"console-{name}-{place}-{theme}.png"
            visitor.browser.save_screenshot(str(taken))
            with Image.open(taken) as picture:
                picture.convert("RGB").quantize(COLOURS).save(taken, optimize=True)
        command("Emulation.setEmulatedMedia", {"features": []})
        command("Emulation.clearDeviceMetricsOverride", {})
        visitor.browser.refresh()
