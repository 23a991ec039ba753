"""The demonstrations: a controller and a runner on this machine, used over REST as any client would."""
