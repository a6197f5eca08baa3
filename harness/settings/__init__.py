"""What a run is: protocols, requests, sweeps."""
