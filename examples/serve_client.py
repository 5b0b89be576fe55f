"""Send a stream to a service and watch it learn.

dualmix serve er --shape 1x8x8 --method.lr 0.05
python examples/serve_client.py http://127.0.0.1:8000
"""

import sys

import numpy as np
from sklearn.datasets import load_digits

from dualmix.client import Client


def main(url: str, batches: int = 100) -> None:
    """Send handwritten digits, two new classes at a time, and print how many were recognised."""
    images, labels = load_digits(return_X_y=True)
    x = np.uint8(images * 15).reshape(-1, 1, 8, 8)
    order = np.argsort(labels // 2, kind="stable")  # 0 and 1 first, then 2 and 3, ...
    with Client(url) as client:
        for batch in np.array_split(order, len(order) // 10)[:batches]:
            client.observe(x[batch], labels[batch])  # acknowledged: it will not be lost
        client.observe(x[order[:10]], labels[order[:10]], wait=True)
        for one in client.labels():
            print(f"{one['label']}: {one['correct']} of {one['images']} recognised when they came")


if __name__ == "__main__":
    main(sys.argv[1])
