"""What is counted while a robot is localized, by the names in `status` and `metrics.json`."""

from enum import Enum


class Event(str, Enum):
    """What departs from normal operation; a member is its name, as a string."""

    # A step of a filter
    UNRECOGNIZED_IMAGE = "unrecognized_image"
    FROZEN_IMAGE = "frozen_image"
    IMAGE_DISCONTINUITY = "image_discontinuity"
    LANDMARKS_CONTRADICT = "landmarks_contradict"
    CAMERA_TURNED = "camera_turned"
    UPDATE_NOT_POSITIVE = "update_not_positive"
    PREDICTION_OFF_MAP = "prediction_off_map"
    UNKNOWN_MOTION = "unknown_motion"

    # The localizer
    ODOMETRY_NOT_FINITE = "odometry_not_finite"
    ODOMETRY_TOO_FAR = "odometry_too_far"
    ODOMETRY_LATE = "odometry_late"
    ODOMETRY_JUMP = "odometry_jump"
    IMAGE_LATE = "image_late"
    IMAGE_BEFORE_ODOMETRY = "image_before_odometry"
    IMAGE_WITHOUT_ODOMETRY = "image_without_odometry"
    IMAGE_DROPPED = "image_dropped"
    LOST = "lost"
    FILTER_RESET = "filter_reset"
    RESETS = "resets"

    # The node
    ODOMETRY_WRONG_FRAME = "odometry_wrong_frame"
    ODOMETRY_INVALID = "odometry_invalid"
    ODOMETRY_STRAY = "odometry_stray"
    ODOMETRY_OTHER_BASE = "odometry_other_base"
    IMAGE_INVALID = "image_invalid"
    IMAGE_ABOVE_RATE = "image_above_rate"
    IMAGES_MISSING = "images_missing"
    INITIAL_POSE_WRONG_FRAME = "initial_pose_wrong_frame"
    INITIAL_POSE_INVALID = "initial_pose_invalid"
    INITIAL_POSE_OFF_MAP = "initial_pose_off_map"
    MESSAGE_INVALID = "message_invalid"
    POSE_NOT_SAVED = "pose_not_saved"
    UNEXPECTED_ERROR = "unexpected_error"

    def __str__(self) -> str:
        return self.value
